"""What the actions of the key table do, by subject. Each takes the face and says nothing back."""
